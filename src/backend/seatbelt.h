/* The macOS back end; see seatbelt.c. */
#pragma once

#include "backend/backend.h"

extern const struct backend seatbelt_backend;
