/* The public interface: version and failures. */
#include "api/api.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/file.h"

const char *sb_version(void) {
  return SANDBOX_VERSION;
}

sb_error *sb_error_new(void) {
  return xcalloc(1, sizeof(sb_error));
}

void sb_error_free(sb_error *error) {
  if (!error)
    return;
  sb_error_clear(error);
  free(error);
}

const char *sb_error_code(const sb_error *error) {
  return sb_code_name(error->code);
}

const char *sb_error_message(const sb_error *error) {
  return error->message ? error->message : "";
}

const char *sb_error_hint(const sb_error *error) {
  return error->hint;
}

int api_memory_file(const void *data, size_t length) {
  int fd = memfd_create("sandbox", MFD_CLOEXEC);
  if (fd < 0)
    return -errno;
  int result = file_write_all(fd, data, length);
  if (result == 0 && lseek(fd, 0, SEEK_SET) < 0)
    result = -errno;
  if (result < 0) {
    close(fd);
    return result;
  }
  return fd;
}

int api_check_words(const char *const argv[], struct sb_error *error) {
  if (argv && argv[0])
    return 0;
  sb_fail(error, SB_CODE_USAGE, 0, "there is no command");
  return sb_hint(error, "pass at least one word, and NULL after the last");
}
