/* The processes of a session, seen from outside. */
#pragma once

#include <jansson.h>
#include <sys/types.h>

/* [{"pid": inside, "host_pid": outside, "parent": inside, "command", "state", "memory_kb",
 * "cpu_seconds"}] for every process below the session's init. What vanishes meanwhile is left
 * out. */
json_t *processes_to_json(pid_t init);
