// The CPU's matrix tiles (Intel AMX): registers of 16 rows of 64 bytes, and who may use them.
#pragma once
#include "vector.h"

namespace antiphon {

// How products of whole numbers (fixed.h) are made: by the best of these that was compiled in and is allowed.
enum Products : int32_t { kPlainly = 0, kByDots = 1, kByTiles = 2 };

inline int32_t whole_products = kByDots;  // raised once the tiles are granted; a test lowers it to compare

}  // namespace antiphon

#if defined(__AMX_INT8__) && defined(__linux__)
#define ANTIPHON_TILES 1
#include <sys/syscall.h>
#include <unistd.h>

namespace antiphon {

inline bool request_tiles() {  // Linux grants the tile registers on demand, to the whole process
  constexpr int kRequest = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

struct alignas(64) TileShape {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
  TileShape() {
    for (int t = 0; t < 8; ++t) {
      row_bytes[t] = 64;
      rows[t] = 16;
    }
  }
};

inline void begin_tiles() {
  static const TileShape shape;
  if (whole_products == kByTiles) _tile_loadconfig(&shape);
}

inline void end_tiles() {
  if (whole_products == kByTiles) _tile_release();
}

}  // namespace antiphon
#else
namespace antiphon {
inline void begin_tiles() {}
inline void end_tiles() {}
}  // namespace antiphon
#endif
