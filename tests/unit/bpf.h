/* A small evaluator of classic BPF, as seccomp uses it: what the kernel would answer. */
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <string.h>

/* The answer for programs that the kernel would refuse. */
#define BPF_INVALID UINT32_MAX

/* Also counts whether anything but architecture and number was looked at: the kernel caches only
 * answers that need neither. */
static inline uint32_t bpf_run(const struct sock_fprog *program, const struct seccomp_data *data,
                               int *ret_argument_loads) {
  uint32_t accumulator = 0;
  *ret_argument_loads = 0;
  for (unsigned at = 0; at < program->len; at++) {
    const struct sock_filter *code = &program->filter[at];
    switch (code->code) {
    case BPF_LD | BPF_W | BPF_ABS:
      if (code->k % 4 || code->k >= sizeof *data)
        return BPF_INVALID;
      *ret_argument_loads += code->k >= offsetof(struct seccomp_data, args);
      memcpy(&accumulator, (const char *)data + code->k, sizeof accumulator);
      break;
    case BPF_ALU | BPF_AND | BPF_K:
      accumulator &= code->k;
      break;
    case BPF_JMP | BPF_JA:
      at += code->k;
      break;
    case BPF_JMP | BPF_JEQ | BPF_K:
      at += accumulator == code->k ? code->jt : code->jf;
      break;
    case BPF_JMP | BPF_JGE | BPF_K:
      at += accumulator >= code->k ? code->jt : code->jf;
      break;
    case BPF_JMP | BPF_JSET | BPF_K:
      at += accumulator & code->k ? code->jt : code->jf;
      break;
    case BPF_RET | BPF_K:
      return code->k;
    default:
      return BPF_INVALID;
    }
  }
  return BPF_INVALID;
}
