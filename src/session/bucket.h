/* A token bucket: how often something may happen, with a burst. Pure; the caller brings the time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct bucket {
  double tokens, burst, per_second;
  uint64_t last_ns;
};

static inline struct bucket bucket_new(double burst, double per_second) {
  return (struct bucket){.tokens = burst, .burst = burst, .per_second = per_second};
}

static inline void bucket_give(struct bucket *bucket, double tokens) {
  bucket->tokens += tokens;
  if (bucket->tokens > bucket->burst)
    bucket->tokens = bucket->burst;
}

/* False if there is none left. */
static inline bool bucket_take(struct bucket *bucket, uint64_t now_ns) {
  if (bucket->last_ns && now_ns > bucket->last_ns)
    bucket_give(bucket, (double)(now_ns - bucket->last_ns) / 1e9 * bucket->per_second);
  bucket->last_ns = now_ns;
  if (bucket->tokens < 1)
    return false;
  bucket->tokens -= 1;
  return true;
}
