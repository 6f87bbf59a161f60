// AMX's bf16, TDPBF16PS, of tiles of 16 rows of 64 bytes: 16 float32 of C, 16 pairs of A or B. This
// file is compiled for it (see trainer/CMakeLists.txt); nothing here calls an inline function of a
// library: see vector.h.
#if defined(__AMX_BF16__) && defined(__AVX512BF16__) && defined(__linux__)

#include <sys/syscall.h>
#include <unistd.h>

#include "trainer/device/cpu/bf16_packing.h"

namespace trainer {
namespace {

constexpr std::size_t k_side = 16; ///< Rows of a tile, and values or pairs a row.
constexpr std::size_t k_row_bytes = 64;

/// The configuration of the tiles, in the format of LDTILECFG.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileShapes) == 64);

/// Tiles 0 to 3 hold C, row-major over (rows, panels), 4 and 5 hold A, 6 and 7 hold B. The first
/// and the second tiles of C and A have these numbers of rows.
void shape_tiles(std::size_t first, std::size_t second) {
  TileShapes shapes;
  const std::size_t rows[8] = {first, first, second, second, first, second, k_side, k_side};
  for (std::size_t tile = 0; tile < 8; ++tile) {
    shapes.rows[tile] = static_cast<std::uint8_t>(rows[tile]);
    shapes.row_bytes[tile] = rows[tile] > 0 ? k_row_bytes : 0;
  }
  // All of it is read: GCC 12 believes that the next line reads only 8 bytes.
  __asm__ volatile("" ::"m"(shapes));
  _tile_loadconfig(&shapes);
}

// A tile's number is part of its instruction. GCC 12's own are macros that paste it as it is
// written, and do not say that a load reads memory, which could so come before what writes it.

template <int Tile>
inline void load_tile(const void* from, std::size_t stride) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(Tile) : "memory");
}

template <int Tile>
inline void store_tile(void* to, std::size_t stride) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(Tile) : "memory");
}

template <int Tile>
inline void clear_tile() {
  __asm__ volatile("tilezero %%tmm%c0" ::"i"(Tile));
}

/// C += A · B.
template <int C, int A, int B>
inline void add_product() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}

/// A tile of C, and the tiles of A and B whose product it is.
template <int Row, int Panel>
struct TileOfC {
  static constexpr int c = 2 * Row + Panel;
  static constexpr int a = 4 + Row;
  static constexpr int b = 6 + Panel;
  static float* in(const Bf16Strip& s, std::size_t row) {
    return s.c + (row + Row * k_side) * s.c_row + Panel * s.c_panel;
  }
};

/// Calls act(TileOfC) for each tile of C in use.
template <bool TwoTiles, bool TwoPanels, typename Act>
inline void each_tile(const Act& act) {
  act(TileOfC<0, 0>{});
  if constexpr (TwoPanels) {
    act(TileOfC<0, 1>{});
  }
  if constexpr (TwoTiles) {
    act(TileOfC<1, 0>{});
  }
  if constexpr (TwoTiles && TwoPanels) {
    act(TileOfC<1, 1>{});
  }
}

/// Computes the rows of C from `row` on: one or two tiles, in one or two panels.
template <bool TwoTiles, bool TwoPanels>
void multiply_tiles(const Bf16Strip& s, std::size_t row) {
  const std::size_t c_bytes = s.c_row * sizeof(float);
  const std::size_t a_bytes = s.a_row * sizeof(Bf16Pair);
  each_tile<TwoTiles, TwoPanels>([&]<typename Tile>(Tile tile) {
    if (s.accumulate) {
      load_tile<Tile::c>(tile.in(s, row), c_bytes);
    } else {
      clear_tile<Tile::c>();
    }
  });
  const Bf16Pair* a = s.a + row * s.a_row;
  const Bf16Pair* b = s.b;
  for (std::size_t pair = 0; pair < s.pairs; pair += k_side, a += k_side, b += k_side * k_panel) {
    load_tile<4>(a, a_bytes);
    load_tile<6>(b, k_row_bytes);
    if constexpr (TwoPanels) {
      load_tile<7>(b + s.pairs * k_panel, k_row_bytes);
    }
    if constexpr (TwoTiles) {
      load_tile<5>(a + k_side * s.a_row, a_bytes);
    }
    each_tile<TwoTiles, TwoPanels>(
        []<typename Tile>(Tile) { add_product<Tile::c, Tile::a, Tile::b>(); });
  }
  each_tile<TwoTiles, TwoPanels>(
      [&]<typename Tile>(Tile tile) { store_tile<Tile::c>(tile.in(s, row), c_bytes); });
}

template <bool TwoPanels>
void multiply_rows(const Bf16Strip& s) {
  std::size_t row = 0;
  if (s.m >= 2 * k_side) {
    shape_tiles(k_side, k_side);
    for (; row + 2 * k_side <= s.m; row += 2 * k_side) {
      multiply_tiles<true, TwoPanels>(s, row);
    }
  }
  const std::size_t rest = s.m - row;
  if (rest > k_side) {
    shape_tiles(k_side, rest - k_side);
    multiply_tiles<true, TwoPanels>(s, row);
  } else if (rest > 0) {
    shape_tiles(rest, 0);
    multiply_tiles<false, TwoPanels>(s, row);
  }
}

void multiply(const Bf16Strip& strip) {
  strip.panels == 1 ? multiply_rows<false>(strip) : multiply_rows<true>(strip);
  _tile_release(); // Otherwise each context switch saves 8 KB.
}

void pack_turned_rows(const Bf16Depth& depth, std::size_t rows, const float* from,
                      std::size_t stride, Bf16Pair* to) {
  for (std::size_t row = 0; row < rows; row += k_panel) {
    const std::size_t count = rows - row < k_panel ? rows - row : k_panel;
    for (std::size_t first = 0; first < depth.pairs; first += k_panel) {
      Pairs16 pairs[k_panel];
      for (std::size_t i = 0; i < k_panel; ++i) {
        pairs[i] =
            (Pairs16)load_column_pairs(depth, first + i, first_lanes(count), from + row, stride);
      }
      transpose(pairs);
      for (std::size_t i = 0; i < count; ++i) {
        _mm512_storeu_si512(to + (row + i) * depth.pairs + first, (__m512i)pairs[i]);
      }
    }
  }
}

/// Linux lets a process use tiles only after it has asked for them.
bool may_use_tiles() {
  constexpr long k_request = 0x1023; // ARCH_REQ_XCOMP_PERM
  constexpr long k_tile_data = 18;
  return syscall(SYS_arch_prctl, k_request, k_tile_data) == 0;
}

} // namespace

const Bf16Instructions* amx_bf16() {
  static constexpr Bf16Instructions instructions = {
      k_side, false, pack_rows, pack_turned_rows, pack_columns, pack_turned, multiply};
  static const bool is_there = __builtin_cpu_supports("amx-tile") &&
                               __builtin_cpu_supports("amx-bf16") &&
                               __builtin_cpu_supports("avx512bf16") && may_use_tiles();
  return is_there ? &instructions : nullptr;
}

} // namespace trainer

#else

#include "trainer/device/cpu/bf16_products.h"

namespace trainer {
const Bf16Instructions* amx_bf16() { return nullptr; }
} // namespace trainer

#endif
