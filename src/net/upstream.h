/* Private to the relay: going through an upstream proxy that policy names. */
#pragma once

#include "net/flow.h"

void upstream_begin(struct flow *flow);
void upstream_read(struct flow *flow);
