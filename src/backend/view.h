/* Private to src/backend: what the plan's operations mean for a tool that mounts by path. */
#pragma once

#include "backend/backend.h"

/* Where a name of the private tmpfs ("tmp/a") appears in the view ("/tmp/a"). New string; NULL if
 * it is not shown by itself (a mask). */
char *view_private_path(const struct plan *plan, const char *source);

/* Kernel file systems and devices, which every tool makes by itself. */
bool view_is_kernel_path(const char *path);

/* The name of the mode for a private place ("1777"). */
unsigned view_private_mode(const struct plan *plan, const char *source);
