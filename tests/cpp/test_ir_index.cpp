// tests/cpp/test_ir_index.cpp: canonical form, simplification and bounds of index expressions. tests/fuzz has random
// ones.
#include <doctest/doctest.h>

#include <initializer_list>
#include <limits>

#include "csrc/ir/index_simplify.h"
#include "csrc/ir/index_terms.h"
#include "csrc/ir/parse.h"
#include "csrc/support/error.h"

using namespace ocl::ir;

namespace {

IndexExpr e(const char* text) { return parse_index(text); }

Ranges loops() {  // i0 < s0, i1 < s1, i2 < 24
  Ranges ranges;
  ranges.set({SymbolKind::kSize, 0}, {0, 1 << 20, 1});
  ranges.set({SymbolKind::kSize, 1}, {0, 1 << 20, 1});
  ranges.set_extent({SymbolKind::kLoop, 0}, IndexExpr::size(0));
  ranges.set_extent({SymbolKind::kLoop, 1}, IndexExpr::size(1));
  ranges.set_extent({SymbolKind::kLoop, 2}, 24);
  return ranges;
}

}  // namespace

TEST_CASE("equal polynomials are one tree") {
  CHECK(e("(s0 + 1)*(s1 - 1)") == e("s1*s0 - s0 + s1 - 1"));
  CHECK(e("i0*4 - 3*i0 - i0") == IndexExpr(0));
  CHECK_FALSE(e("s0*s1") == e("s0*s0"));
}

TEST_CASE("division floors and mod has the divisor's sign") {
  const auto none = [](Symbol) -> int64_t { return -7; };
  CHECK(evaluate(e("i0 // 2"), none) == -4);
  CHECK(evaluate(e("i0 % 3"), none) == 2);
  CHECK(evaluate(e("i0 % -3"), none) == -1);
  CHECK(ceildiv(7, 2).is_const(4));
  CHECK(ceildiv(-7, 2).is_const(-3));
}

TEST_CASE("construction takes out what divides") {
  CHECK(e("(i0*8 + i1) // 8").str() == "i0 + i1 // 8");
  CHECK(e("(i0*s1 + i1) % s1").str() == "i1 % s1");
  CHECK(e("(i0 // 4) // 2").str() == "i0 // 8");
  CHECK(e("(i0*4 + 3) // 8").str() == "i0 // 2");
  CHECK(e("(i0*(s0 + 1) + s0 + 1) // (s0 + 1)").str() == "i0 + 1");
}

TEST_CASE("flattening and unflattening cancel, with symbolic sizes") {
  const Ranges ranges = loops();
  CHECK(simplify(e("(i0*s1 + i1) // s1"), ranges).str() == "i0");
  CHECK(simplify(e("(i0*s1 + i1) % s1"), ranges).str() == "i1");
  CHECK(simplify(e("(i2 // s1)*s1 + i2 % s1"), ranges).str() == "i2");
  CHECK(simplify(e("(i2 // 8)*8 + ((i2 // 2) % 4)*2 + i2 % 2"), ranges).str() == "i2");
}

TEST_CASE("bounds with symbolic loops") {
  const Ranges ranges = loops();
  CHECK(ranges.known_less(e("i0*s1 + i1"), e("s0*s1")));
  CHECK_FALSE(ranges.known_less(e("i0*s1 + i1 + 1"), e("s0*s1")));
  CHECK(ranges.known_less(e("i0 % s1"), e("s1")));
  CHECK(ranges.known_nonnegative(e("s0 - 1 - i0")));
  CHECK(ranges.known_divides(e("s1"), e("i0*s1 + s1*4")));
  CHECK(ranges.of(e("i2*3 - 1")).high == 68);
  Ranges twice;
  twice.set({SymbolKind::kSize, 0}, {1, 1 << 20, 1});
  twice.set_extent({SymbolKind::kLoop, 0}, IndexExpr::size(0) * 2);
  CHECK(twice.of(e("i0 // s0")).high == 1);
}

TEST_CASE("a bound that overflows proves nothing") {
  Ranges ranges;
  ranges.set({SymbolKind::kSize, 0}, {0, int64_t{1} << 60, 1});
  ranges.set_extent({SymbolKind::kLoop, 0}, int64_t{1} << 60);
  CHECK_FALSE(ranges.known_nonnegative(e("s0 - i0*i0")));
}

TEST_CASE("a sum or a product that does not fit is noticed, and only such") {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();
  struct Case {
    int64_t a, b;
    bool sum_fits, product_fits;
  };
  for (const Case& c : std::initializer_list<Case>{{3, -4, true, true},
                                                   {kMost, 1, false, true},
                                                   {kMost, -1, true, true},
                                                   {kLeast, -1, false, false},
                                                   {kLeast, kMost, true, false},
                                                   {kLeast, kLeast, false, false},
                                                   {kMost, 2, false, false},
                                                   {int64_t{1} << 31, int64_t{1} << 31, true, true},
                                                   {int64_t{1} << 32, int64_t{1} << 31, true, false},
                                                   {int64_t{1} << 32, -(int64_t{1} << 31), true, true},
                                                   {int64_t{1} << 40, int64_t{1} << 40, true, false}}) {
    CAPTURE(c.a);
    CAPTURE(c.b);
    const IndexExpr i0 = e("i0");
    index_overflow() = false;
    const IndexExpr sum = i0 * IndexExpr(c.a) + i0 * IndexExpr(c.b);
    CHECK(index_overflow() == !c.sum_fits);
    index_overflow() = false;
    const IndexExpr product = (i0 * IndexExpr(c.a)) * IndexExpr(c.b);
    CHECK(index_overflow() == !c.product_fits);
    index_overflow() = false;
  }
}

TEST_CASE("affine parts") {
  const auto affine = affine_in(e("i0*s1*4 + i1 + 7"), {SymbolKind::kLoop, 0});
  REQUIRE(affine);
  CHECK(affine->coefficient.str() == "s1*4");
  CHECK(affine->rest.str() == "i1 + 7");
  CHECK_FALSE(affine_in(e("i0 // 2"), {SymbolKind::kLoop, 0}));
  CHECK_FALSE(affine_in(e("i0*i0"), {SymbolKind::kLoop, 0}));
}

TEST_CASE("text that is no expression is refused with its column") {
  for (const char* bad : {"", "i0 +", "i0 // 0", "(i0", "x0", "min(i0)", "i0 i1", "99999999999999999999"})
    CHECK_THROWS_AS(e(bad), ocl::Error);
  CHECK(e(e("-i0*3 + s1*(i1 // 4) - 9223372036854775807").str().c_str()) == e("s1*(i1 // 4) - 9223372036854775807 - i0*3"));
}
