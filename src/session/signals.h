/* Private to src/session: signals go on to the workload, and stop us when they stop it. */
#pragma once

#include "core/error.h"

struct monitor;

/* Ours from now on, by a descriptor in the monitor's loop; and given back at the end. */
int signals_take(struct monitor *monitor, struct sb_error *error);
void signals_give_back(struct monitor *monitor);

void signals_read(struct monitor *monitor);
void signals_handle(struct monitor *monitor, int signal);

/* The workload has stopped: so do we, until the user brings us back. */
void signals_stop_with_workload(struct monitor *monitor);

/* A start that is given up, because of this signal. */
void signals_abandon(struct monitor *monitor, int signal);
