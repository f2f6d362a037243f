/* Private to src/backend: the parts of the vm back end. A virtual machine here is a native session
 * whose command is QEMU: what the guest can reach of the host is what that session shows, secrets
 * masked and protected names read-only, whatever happens inside the guest's kernel. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "backend/backend.h"
#include "core/text.h"

/* ---- the guest's first file system (vm-archive.c, pure) ---- */

/* Appends a file, or a folder, to an archive in cpio's "newc" format. */
void archive_add(struct text *archive, const char *name, unsigned mode, const void *data,
                 size_t size);
void archive_finish(struct text *archive);

/* ---- kernel and modules (vm-kernel.c) ---- */

/* The release of a kernel image (bzImage or ELF), such as "6.1.0-44-amd64". New string; NULL if it
 * is neither. Pure. */
char *kernel_release(const void *image, size_t size);

/* From the texts of modules.dep and modules.builtin: the files that the wanted modules need, each
 * after those that it needs itself. Error: which one there is not. Pure. */
int kernel_order_modules(const char *dependencies, const char *builtin, const char *const *wanted,
                         struct strv *ret_files, struct sb_error *error);

struct vm_kernel {
  char *image;   /* canonical */
  char *release; /* "6.1.0-44-amd64" */
  char *modules; /* folder: lib/modules/RELEASE beside the image, or /lib/modules/RELEASE */
};
void vm_kernel_clear(struct vm_kernel *kernel);
#define _cleanup_vm_kernel_ __attribute__((cleanup(vm_kernel_clear)))

/* The configured one (vm.kernel), or the newest readable one of /boot that has its modules. */
int vm_kernel_find(const struct policy *policy, struct vm_kernel *ret_kernel,
                   struct sb_error *error);

/* Adds the modules that a guest needs to its archive, and their names in order to the list. */
int vm_kernel_add_modules(const struct vm_kernel *kernel, struct text *archive,
                          struct strv *ret_names, struct sb_error *error);

/* ---- the request (vm-request.c) ---- */

/* The whole archive; `program` is sandbox-vm, the guest's first process. */
int vm_make_archive(const struct backend_request *request, const struct vm_kernel *kernel,
                    const char *program, struct text *ret_archive, struct sb_error *error);

/* ---- machine (vm-machine.c) ---- */

/* Opens /dev/kvm, makes a machine and lets it run a few instructions. */
bool vm_kvm_works(void);

struct vm_machine {
  const char *qemu, *kernel, *initramfs, *console; /* as QEMU sees them */
  unsigned long long memory_mb;
};
/* QEMU and its options, but for accelerator, processors and ports, which sandbox-vm adds. Pure. */
void vm_machine_words(const struct vm_machine *machine, struct strv *ret_words);
