#include "base/half.h"

#include <cmath>
#include <limits>

#include <doctest/doctest.h>

using namespace gradsync;

TEST_CASE("half: known values both ways, without the compiler's type") {
  const struct {
    float value;
    std::uint16_t bits;
  } known[] = {{0.0f, 0},          {-0.0f, 0x8000},    {1.0f, 0x3c00},      {-2.0f, 0xc000},
               {65504.0f, 0x7bff}, {0x1p-14f, 0x0400}, {0x1p-24f, 0x0001},  {0x3ffp-24f, 0x03ff},
               {0.1f, 0x2e66},     {1e6f, 0x7c00},     {-1e6f, 0xfc00},     {65519.0f, 0x7bff},
               {65520.0f, 0x7c00}, {0x1p-25f, 0x0000}, {0x1.8p-24f, 0x0002}};
  for (const auto& one : known)
    CHECK_MESSAGE(to_fp16_portable(one.value) == one.bits, one.value);
  CHECK(from_fp16_portable(0x3555) == 0.333251953125f);
  CHECK(std::signbit(from_fp16_portable(0x8000)));
  CHECK(from_fp16_portable(0xfc00) == -std::numeric_limits<float>::infinity());
  CHECK(std::isnan(from_fp16_portable(0x7e00)));
  CHECK(std::isnan(from_fp16_portable(to_fp16_portable(std::nanf("")))));
}

TEST_CASE("half: every half comes back, and what lies between goes to the nearer, ties to even") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const auto here = static_cast<std::uint16_t>(bits);
    const auto next = static_cast<std::uint16_t>(bits + 1);
    const float low = from_fp16_portable(here);
    const float high = next == 0x7c00 ? 65536.0f : from_fp16_portable(next);
    const float middle = low + (high - low) / 2;
    const std::uint16_t even = bits % 2 == 0 ? here : next;
    wrong += to_fp16_portable(low) != here;
    wrong += to_fp16_portable(middle) != even;
    wrong += to_fp16_portable(std::nextafter(middle, 0.0f)) != here;
    wrong += to_fp16_portable(std::nextafter(middle, 1e9f)) != next;
    wrong += to_fp16_portable(-low) != (here | 0x8000u);
    wrong += from_fp16(here) != low;
    wrong += to_fp16(middle) != even;
  }
  CHECK(wrong == 0);
}
