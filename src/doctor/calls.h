/* System calls that need no namespace, each tried for real. Each returns 0 or an errno. */
#pragma once

int calls_try_openat2(void);
int calls_try_close_range(void);
int calls_try_pidfd_open(void);
int calls_try_clone3(void);
int calls_try_statmount(void);
