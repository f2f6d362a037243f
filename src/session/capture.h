/* The workload's output, kept for the result: two pipes, read as they fill, up to a limit each.
 * What is over the limit is read and dropped, so that the workload goes on as it would. */
#pragma once

#include <jansson.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/text.h"

struct capture_stream {
  int reader, writer; /* the writer is the workload's end; -1 once it is handed over */
  struct text data;
  size_t limit;
  size_t dropped;
};

struct capture {
  bool used;
  struct capture_stream streams[2]; /* stdout, stderr */
};
#define CAPTURE_NONE                                                                               \
  ((struct capture){.streams = {{.reader = -1, .writer = -1}, {.reader = -1, .writer = -1}}})

/* Makes the pipes. Returns 0 or a negative errno. */
int capture_open(struct capture *capture, size_t limit);
void capture_close_writers(struct capture *capture);
void capture_watch(const struct capture *capture, struct pollfd watched[2]);
void capture_read(struct capture *capture, const struct pollfd watched[2]);

/* Reads what is left, after the session's end. */
void capture_drain(struct capture *capture);
void capture_clear(struct capture *capture);

/* Sets "stdout" (or "stdout_b64" if it is not UTF-8) and "stdoutTruncated" in a result. */
void capture_stream_to_json(const struct capture_stream *stream, const char *name, json_t *object);
