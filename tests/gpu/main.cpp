// SPDX-License-Identifier: BSD-3-Clause
// Needs a GPU: without one every case says SKIP with the reason.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
