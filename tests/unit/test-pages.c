/* Pages that a fork leaves shared become the parent's own. */
#include "unit.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/pages.h"

#define MAPPED_BY_ONE (UINT64_C(1) << 56) /* of /proc/self/pagemap */

static bool is_own(const char *page) {
  uint64_t entry = 0;
  size_t size = (size_t)sysconf(_SC_PAGESIZE);
  int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  assert_true(fd >= 0);
  assert_int_equal(pread(fd, &entry, sizeof entry, (off_t)((uintptr_t)page / size * sizeof entry)),
                   sizeof entry);
  close(fd);
  return entry & MAPPED_BY_ONE;
}

static void test_shared_pages_become_own(void **state) {
  (void)state;
  size_t size = (size_t)sysconf(_SC_PAGESIZE);
  char *used = mmap(NULL, 4 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(used != MAP_FAILED);
  used[0] = 'a';
  used[2 * size] = 'b'; /* the second and the fourth page do not exist */
  pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  assert_true(child > 0);
  assert_false(is_own(used)); /* the fork did share it */
  assert_false(is_own(used + 2 * size));
  pages_make_own();
  assert_true(is_own(used));
  assert_true(is_own(used + 2 * size));
  assert_int_equal(used[0], 'a');
  assert_int_equal(used[2 * size], 'b');
  unsigned char present[4];
  assert_int_equal(mincore(used, 4 * size, present), 0);
  assert_false(present[1] & 1); /* what was not used still is not */
  assert_false(present[3] & 1);
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  munmap(used, 4 * size);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_shared_pages_become_own)};

UNIT_MAIN(tests)
