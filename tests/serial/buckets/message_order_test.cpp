#include "buckets/message_order.h"

#include <doctest/doctest.h>

using namespace gradsync;

using Order = std::vector<std::size_t>;

TEST_CASE("message order: without a queue messages go as they become ready") {
  CHECK(most_urgent_first({}, 1).empty());
  CHECK(most_urgent_first({{0, 1, 0}, {2, 1, 1}, {4, 1, 2}}, 1) == Order{0, 1, 2});
}

TEST_CASE("message order: what is urgent overtakes what is ready, but for the message under way") {
  // A second a byte. 0 goes from 0 to 3; by then 1 (of the same urgency) and 2 are ready.
  CHECK(most_urgent_first({{0, 3, 0}, {0, 3, 0}, {1, 1, 5}}, 1) == Order{0, 2, 1});
  // Ready a moment too late: 1 is already under way.
  CHECK(most_urgent_first({{0, 3, 0}, {0, 3, 0}, {3.5, 1, 5}}, 1) == Order{0, 1, 2});
}

TEST_CASE("message order: on a fast channel nothing is overtaken, whatever is urgent") {
  CHECK(most_urgent_first({{0, 9, 0}, {1, 9, 1}, {2, 9, 2}}, 1e-3) == Order{0, 1, 2});
}

TEST_CASE(
    "message order: on a slow channel the last layers' gradients wait for the first layers'") {
  // Four layers a second apart, ten seconds a message: after the first one all are ready.
  CHECK(most_urgent_first({{0, 1, 0}, {1, 1, 1}, {2, 1, 2}, {3, 1, 3}}, 10) == Order{0, 3, 2, 1});
}

TEST_CASE("message order: each message once, though none is ready at the start") {
  CHECK(most_urgent_first({{5, 1, 0}, {4, 1, 1}}, 1) == Order{1, 0});
}
