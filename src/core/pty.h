/* A new pair of terminals. Raw system calls only: also used between clone and exec. */
#pragma once

/* 0 or a negative errno. */
int pty_open(int *ret_master, int *ret_slave);
