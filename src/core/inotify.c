/* Reading what inotify has to say; see inotify.h. */
#include "core/inotify.h"

#include <string.h>
#include <unistd.h>

void inotify_read(int fd, char *buffer, size_t size, inotify_taker *take, void *context) {
  ssize_t got = read(fd, buffer, size);
  for (ssize_t at = 0; at < got;) {
    struct inotify_event event;
    memcpy(&event, buffer + at, sizeof event);
    take(context, &event, buffer + at + sizeof event);
    at += (ssize_t)(sizeof event + event.len);
  }
}
