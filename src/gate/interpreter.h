/* What the kernel opens by itself when a file is executed: the program after "#!", or the loader
 * that an ELF file names. No call of the workload would tell us. */
#pragma once

#include <limits.h>
#include <stdbool.h>

/* `fd` is pinned with O_PATH. False if it needs none, or cannot be read. */
bool interpreter_of(int fd, char ret_path[PATH_MAX]);
