/* Private to src/backend: one file each defines these; registry.c lists them. */
#pragma once

#include "backend/backend.h"

extern const struct backend bwrap_backend, landlock_backend, seatbelt_backend;
