/* The clock that nobody can set. */
#pragma once

#include <stdint.h>

uint64_t monotonic_ns(void);
