// The phases on the host, for tests without a device.
#include "host.h"

#include "entries.h"
