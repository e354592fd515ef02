// tests/cpp/test_clock.cpp: times of a device's clock as unix time.
#include <doctest/doctest.h>

#include "csrc/runtime/device/clock.h"
#include "csrc/runtime/record/history.h"
#include "tests/cpp/runtime_devices.h"

using namespace ocl::runtime;

TEST_CASE("one sample is a difference, two are a line") {
  const DeviceClock one(std::nullopt, {1000000, 5000000000, 10});
  CHECK(one.unix_ns(1000000) == 5000000000);
  CHECK(one.unix_ns(1500000) == 5000500000);
  CHECK(one.uncertainty_ns() == 10);

  // The host's clock runs faster than the device's, by a thousandth.
  const DeviceClock two(ClockSample{1000000000, 5000000000, 30}, {2000000000, 6001000000, 10});
  CHECK(two.unix_ns(2000000000) == 6001000000);
  CHECK(two.unix_ns(1000000000) == 5000000000);
  CHECK(two.unix_ns(1500000000) == 5500500000);
  CHECK(two.uncertainty_ns() == 30);

  // The samples are too close in time to measure the clocks' rates: their errors are larger than the difference.
  const DeviceClock close_by(ClockSample{1000000, 5000000000, 30}, {1000100, 5000090000, 10});
  CHECK(close_by.unix_ns(2000100) == 5001090000);
}

TEST_CASE("a clock moves by its doubt at most, and only ahead") {
  DeviceClock clock(std::nullopt, {0, 1000, 50});
  clock.move(20);
  CHECK(clock.unix_ns(0) == 1020);
  clock.move(-5);
  CHECK(clock.unix_ns(0) == 1020);
  DeviceClock other(std::nullopt, {0, 1000, 50});
  other.move(1000);
  CHECK(other.unix_ns(0) == 1050);
}

TEST_CASE("a device's clock is sampled") {
  for_each_device([](Device& device) {
    const int64_t before = unix_ns();
    const std::optional<ClockSample> first = sample_clock(device), last = sample_clock(device);
    const int64_t after = unix_ns();
    REQUIRE(first.has_value());
    REQUIRE(last.has_value());
    CHECK(before - first->uncertainty_ns <= first->unix_ns);
    CHECK(last->unix_ns <= after + last->uncertainty_ns);
    CHECK(first->device_ns < last->device_ns);
    const DeviceClock clock(first, *last);
    CHECK(clock.unix_ns(first->device_ns) <= clock.unix_ns(last->device_ns));
  });
}

TEST_CASE("amounts have three digits") {
  CHECK(amount(0, "B") == "0 B");
  CHECK(amount(999, "B") == "999 B");
  CHECK(amount(1000, "B") == "1.00 kB");
  CHECK(amount(9994, "B") == "9.99 kB");
  CHECK(amount(9996, "B") == "10.0 kB");
  CHECK(amount(123456, "FLOP") == "123 kFLOP");
  CHECK(amount(999499, "B") == "999 kB");
  CHECK(amount(999500, "B") == "1.00 MB");
  CHECK(amount(2.4e9, "FLOP") == "2.40 GFLOP");
}
