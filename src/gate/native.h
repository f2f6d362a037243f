/* The short way for what nearly every call is about: something mounted, of which nobody has to be
 * asked. Whoever does not take it walks (walk.h), and finds the same. */
#pragma once

#include "gate/call.h"

/* Mounts of the session, by numbers that the kernel gives once and never again. Whatever a walk of
 * ours comes to there is something mounted, whichever way it went. */
struct native_mounts {
  uint64_t known[64];
  size_t count; /* of all that were ever learnt: the oldest is forgotten first */
};

/* True if the call's path leads to something mounted, or to a missing name in a mounted folder. */
bool native_call(const struct walker *walker, struct native_mounts *mounts, const struct call *call,
                 const char *path);
