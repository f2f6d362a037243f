/* Private to src/backend: one file each defines these; registry.c lists them. */
#pragma once

#include "backend/backend.h"

extern const struct backend bwrap_backend, firejail_backend, landlock_backend, nsjail_backend;
extern const struct backend seatbelt_backend;
extern const struct backend podman_backend, docker_backend, vm_backend;
