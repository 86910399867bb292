/* Kills its process by SIGKILL at a chosen call by which bytes or names reach a disk, a bucket or a database.
 *
 * Loaded before the C library (LD_PRELOAD), so that calls of Python, SQLite, HDF5, COLMAP and obstore all pass here. Nothing is
 * counted until `kill_arm`. Counted are calls on files below a folder, and what is sent to sockets.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char root[PATH_MAX];
static long count, target;
static int armed, halves, told = -1;

/* Count what follows in files below `folder`; die at point `number` (0: never), with `half` after half of a write. A line for
 * each point goes to the file `log` (negative: none). */
void kill_arm(const char *folder, long number, int half, int log)
{
    snprintf(root, sizeof root, "%s", folder);
    count = 0, target = number, halves = half, told = log;
    __atomic_store_n(&armed, 1, __ATOMIC_SEQ_CST);
}

void kill_disarm(void) { __atomic_store_n(&armed, 0, __ATOMIC_SEQ_CST); }

static void die(void)
{
    syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    for (;;) pause();
}

/* Count a call; 1 if it is the one that has to die after half of its bytes. */
static int counted(const char *call, const char *path, size_t size)
{
    long number = __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST);
    if (told >= 0) {
        char line[PATH_MAX + 100];
        int length = snprintf(line, sizeof line, "%ld\t%s\t%zu\t%s\n", number, call, size, path);
        syscall(SYS_write, told, line, length);
    }
    if (number != target) return 0;
    if (halves && size > 1) return 1;
    die();
    return 0;
}

/* The path of what an open file is, if it counts: below the folder, or a socket. */
static int of_file(int file, char *path)
{
    char link[64];
    if (!__atomic_load_n(&armed, __ATOMIC_SEQ_CST)) return 0;
    int before = errno, found = 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length > 0) {
        path[length] = 0;
        if (!strncmp(path, "socket:", 7)) {
            struct sockaddr_storage address;
            socklen_t size = sizeof address;
            if (!getpeername(file, (struct sockaddr *)&address, &size)) {
                strcpy(path, address.ss_family == AF_UNIX ? "database:" : "bucket:");
                found = address.ss_family == AF_UNIX || address.ss_family == AF_INET;
            }
        } else
            found = !strncmp(path, root, strlen(root));
    }
    errno = before;
    return found;
}

static int of_path(int folder, const char *name, char *path)
{
    if (!__atomic_load_n(&armed, __ATOMIC_SEQ_CST) || !name) return 0;
    if (name[0] == '/' || folder == AT_FDCWD)
        snprintf(path, PATH_MAX, "%s", name);
    else {
        char start[PATH_MAX];
        if (!of_file(folder, start)) return 0;
        snprintf(path, PATH_MAX, "%.2000s/%.2000s", start, name);
    }
    return !strncmp(path, root, strlen(root));
}

#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name);

#define WRITE(result, name, call, half, parameters, ...) \
    result name parameters \
    { \
        char path[PATH_MAX]; \
        REAL(result, name, __VA_ARGS__) \
        if (of_file(file, path) && counted(#name, path, size)) { half; die(); } \
        return call; \
    }

WRITE(ssize_t, write, real(file, data, size), real(file, data, size / 2), (int file, const void *data, size_t size),
      int, const void *, size_t)
WRITE(ssize_t, pwrite, real(file, data, size, at), real(file, data, size / 2, at),
      (int file, const void *data, size_t size, off_t at), int, const void *, size_t, off_t)
WRITE(ssize_t, pwrite64, real(file, data, size, at), real(file, data, size / 2, at),
      (int file, const void *data, size_t size, off64_t at), int, const void *, size_t, off64_t)
WRITE(ssize_t, send, real(file, data, size, flags), real(file, data, size / 2, flags),
      (int file, const void *data, size_t size, int flags), int, const void *, size_t, int)
WRITE(ssize_t, sendto, real(file, data, size, flags, to, length), real(file, data, size / 2, flags, to, length),
      (int file, const void *data, size_t size, int flags, const struct sockaddr *to, socklen_t length),
      int, const void *, size_t, int, const struct sockaddr *, socklen_t)
WRITE(ssize_t, sendfile, real(file, from, at, size), real(file, from, at, size / 2),
      (int file, int from, off_t *at, size_t size), int, int, off_t *, size_t)
WRITE(ssize_t, sendfile64, real(file, from, at, size), real(file, from, at, size / 2),
      (int file, int from, off64_t *at, size_t size), int, int, off64_t *, size_t)

static size_t total(const struct iovec *parts, int number)
{
    size_t sum = 0;
    for (int i = 0; i < number; i++) sum += parts[i].iov_len;
    return sum;
}

static void write_half(int file, const struct iovec *parts, int number)
{
    size_t left = total(parts, number) / 2;
    for (int i = 0; i < number && left; i++) {
        size_t now = parts[i].iov_len < left ? parts[i].iov_len : left;
        syscall(SYS_write, file, parts[i].iov_base, now);
        left -= now;
    }
}

ssize_t writev(int file, const struct iovec *parts, int number)
{
    char path[PATH_MAX];
    REAL(ssize_t, writev, int, const struct iovec *, int)
    if (of_file(file, path) && counted("writev", path, total(parts, number))) { write_half(file, parts, number); die(); }
    return real(file, parts, number);
}

ssize_t sendmsg(int file, const struct msghdr *what, int flags)
{
    char path[PATH_MAX];
    REAL(ssize_t, sendmsg, int, const struct msghdr *, int)
    if (of_file(file, path) && counted("sendmsg", path, total(what->msg_iov, what->msg_iovlen))) {
        write_half(file, what->msg_iov, what->msg_iovlen);
        die();
    }
    return real(file, what, flags);
}

ssize_t copy_file_range(int from, off64_t *start, int file, off64_t *at, size_t size, unsigned flags)
{
    char path[PATH_MAX];
    REAL(ssize_t, copy_file_range, int, off64_t *, int, off64_t *, size_t, unsigned)
    if (of_file(file, path) && counted("copy_file_range", path, size)) { real(from, start, file, at, size / 2, flags); die(); }
    return real(from, start, file, at, size, flags);
}

size_t fwrite(const void *data, size_t size, size_t number, FILE *stream)
{
    char path[PATH_MAX];
    REAL(size_t, fwrite, const void *, size_t, size_t, FILE *)
    if (of_file(fileno(stream), path) && counted("fwrite", path, size * number)) {
        real(data, 1, size * number / 2, stream);
        fflush(stream);
        die();
    }
    return real(data, size, number, stream);
}

#define ON_FILE(name, call, parameters, ...) \
    int name parameters \
    { \
        char path[PATH_MAX]; \
        REAL(int, name, __VA_ARGS__) \
        if (of_file(file, path)) counted(#name, path, 0); \
        return call; \
    }

ON_FILE(fsync, real(file), (int file), int)
ON_FILE(fdatasync, real(file), (int file), int)
ON_FILE(ftruncate, real(file, size), (int file, off_t size), int, off_t)
ON_FILE(ftruncate64, real(file, size), (int file, off64_t size), int, off64_t)
ON_FILE(posix_fallocate, real(file, at, size), (int file, off_t at, off_t size), int, off_t, off_t)
ON_FILE(posix_fallocate64, real(file, at, size), (int file, off64_t at, off64_t size), int, off64_t, off64_t)

#define ON_PATH(name, from, path_, call, parameters, ...) \
    int name parameters \
    { \
        char path[PATH_MAX]; \
        REAL(int, name, __VA_ARGS__) \
        if (of_path(from, path_, path)) counted(#name, path, 0); \
        return call; \
    }

ON_PATH(rename, AT_FDCWD, b, real(a, b), (const char *a, const char *b), const char *, const char *)
ON_PATH(renameat, q, b, real(p, a, q, b), (int p, const char *a, int q, const char *b), int, const char *, int, const char *)
ON_PATH(renameat2, q, b, real(p, a, q, b, flags), (int p, const char *a, int q, const char *b, unsigned flags),
        int, const char *, int, const char *, unsigned)
ON_PATH(link, AT_FDCWD, b, real(a, b), (const char *a, const char *b), const char *, const char *)
ON_PATH(linkat, q, b, real(p, a, q, b, flags), (int p, const char *a, int q, const char *b, int flags),
        int, const char *, int, const char *, int)
ON_PATH(unlink, AT_FDCWD, a, real(a), (const char *a), const char *)
ON_PATH(unlinkat, p, a, real(p, a, flags), (int p, const char *a, int flags), int, const char *, int)
ON_PATH(rmdir, AT_FDCWD, a, real(a), (const char *a), const char *)
ON_PATH(mkdir, AT_FDCWD, a, real(a, mode), (const char *a, mode_t mode), const char *, mode_t)
ON_PATH(mkdirat, p, a, real(p, a, mode), (int p, const char *a, mode_t mode), int, const char *, mode_t)
ON_PATH(truncate, AT_FDCWD, a, real(a, size), (const char *a, off_t size), const char *, off_t)
ON_PATH(chmod, AT_FDCWD, a, real(a, mode), (const char *a, mode_t mode), const char *, mode_t)

/* Files that are made or emptied as they are opened. */
#define OPEN(name, from, call, parameters, ...) \
    int name parameters \
    { \
        char path[PATH_MAX]; \
        mode_t mode = 0; \
        REAL(int, name, __VA_ARGS__) \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_list more; \
            va_start(more, flags); \
            mode = va_arg(more, mode_t); \
            va_end(more); \
        } \
        if (flags & (O_CREAT | O_TRUNC) && of_path(from, a, path)) counted(#name, path, 0); \
        return call; \
    }

OPEN(open, AT_FDCWD, real(a, flags, mode), (const char *a, int flags, ...), const char *, int, ...)
OPEN(open64, AT_FDCWD, real(a, flags, mode), (const char *a, int flags, ...), const char *, int, ...)
OPEN(openat, p, real(p, a, flags, mode), (int p, const char *a, int flags, ...), int, const char *, int, ...)
OPEN(openat64, p, real(p, a, flags, mode), (int p, const char *a, int flags, ...), int, const char *, int, ...)

FILE *fopen64(const char *a, const char *kind)
{
    char path[PATH_MAX];
    REAL(FILE *, fopen64, const char *, const char *)
    if (kind[0] != 'r' && of_path(AT_FDCWD, a, path)) counted("fopen64", path, 0);
    return real(a, kind);
}

FILE *fopen(const char *a, const char *kind)
{
    char path[PATH_MAX];
    REAL(FILE *, fopen, const char *, const char *)
    if (kind[0] != 'r' && of_path(AT_FDCWD, a, path)) counted("fopen", path, 0);
    return real(a, kind);
}
