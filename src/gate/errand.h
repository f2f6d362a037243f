/* Calls that a thread which is held (hand-back.h) makes for us: with its own rights, where it
 * stands, before it goes on as if nothing had been. Only a thread of a program of this machine's
 * own kind: a 32-bit one has other numbers. */
#pragma once

#include "gate/target.h"

/* What the thread is when it is stopped; everything is put back by errand_end. */
struct errand;

/* NULL if it cannot be sent; then it was left alone. The path is for the calls below. */
struct errand *errand_begin(const struct target *target, const char *path);

/* Makes that its working folder; or what one of its descriptors leads to. 0 or a negative errno. */
int errand_enter(struct errand *errand);
int errand_replace(struct errand *errand, int descriptor);

/* As it was when its call had failed: with that error still, and stopped. */
void errand_end(struct errand *errand);
