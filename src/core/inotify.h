/* Reading what inotify has to say. */
#pragma once

#include <stddef.h>
#include <sys/inotify.h>

/* One change. There is a name only if event->len > 0. */
typedef void inotify_taker(void *context, const struct inotify_event *event, const char *name);

/* Reads once, as much as there is room for (aligned as an event is), and takes each. */
void inotify_read(int fd, char *buffer, size_t size, inotify_taker *take, void *context);
