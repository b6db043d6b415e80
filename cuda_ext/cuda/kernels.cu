// The phases on a CUDA device.
#include "device.cuh"

#include "entries.h"
