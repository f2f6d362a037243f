/* The workload's output, kept for the result; see capture.h. */
#include "session/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/json.h"

int capture_open(struct capture *capture, size_t limit) {
  for (size_t i = 0; i < 2; i++) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
      return -errno;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    capture->streams[i] =
        (struct capture_stream){.reader = ends[0], .writer = ends[1], .limit = limit};
  }
  capture->used = true;
  return 0;
}

static void close_end(int *fd) {
  if (*fd >= 0)
    close(*fd);
  *fd = -1;
}

void capture_close_writers(struct capture *capture) {
  for (size_t i = 0; i < 2; i++)
    close_end(&capture->streams[i].writer);
}

void capture_watch(const struct capture *capture, struct pollfd watched[2]) {
  for (size_t i = 0; i < 2; i++)
    watched[i] = (struct pollfd){.fd = capture->streams[i].reader, .events = POLLIN};
}

/* Returns false at the end of the stream. */
static bool read_some(struct capture_stream *stream) {
  char buffer[65536];
  ssize_t got = read(stream->reader, buffer, sizeof buffer);
  if (got < 0)
    return errno == EAGAIN || errno == EINTR;
  size_t room = stream->limit - stream->data.length;
  size_t kept = (size_t)got < room ? (size_t)got : room;
  text_append_bytes(&stream->data, buffer, kept);
  stream->dropped += (size_t)got - kept;
  return got > 0;
}

void capture_read(struct capture *capture, const struct pollfd watched[2]) {
  for (size_t i = 0; i < 2; i++) {
    if (watched[i].revents && !read_some(&capture->streams[i]))
      close_end(&capture->streams[i].reader);
  }
}

void capture_drain(struct capture *capture) {
  for (size_t i = 0; i < 2; i++) {
    struct capture_stream *stream = &capture->streams[i];
    struct pollfd ready = {.fd = stream->reader, .events = POLLIN};
    while (stream->reader >= 0 && poll(&ready, 1, 0) > 0 && read_some(stream))
      ;
  }
}

void capture_clear(struct capture *capture) {
  for (size_t i = 0; i < 2; i++) {
    close_end(&capture->streams[i].reader);
    close_end(&capture->streams[i].writer);
    text_clear(&capture->streams[i].data);
  }
}

void capture_stream_to_json(const struct capture_stream *stream, const char *name, json_t *object) {
  _cleanup_free_ char *truncated = xasprintf("%sTruncated", name);
  json_t *text = json_stringn(text_string(&stream->data), stream->data.length);
  if (text) {
    json_object_set_new(object, name, text);
  } else {
    _cleanup_free_ char *key = xasprintf("%s_b64", name);
    _cleanup_free_ char *encoded = base64_encode(stream->data.data, stream->data.length);
    json_object_set_new(object, name, json_null());
    json_object_set_new(object, key, json_string(encoded));
  }
  json_object_set_new(object, truncated, json_boolean(stream->dropped > 0));
}
