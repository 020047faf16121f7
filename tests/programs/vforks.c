/* A child sleeps in its parent's memory, as before it executes a program. No signal is blocked. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int count, char **arguments) {
    struct timespec wait = {0, (long)(1e9 * atof(arguments[1]))};
    if (vfork() == 0) {
        nanosleep(&wait, NULL);
        _exit(0);
    }
    return 0;
}
