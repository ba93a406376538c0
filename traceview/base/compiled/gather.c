/* C code of tables/arrays.py: values of a column picked by row.
 *
 * Knows nothing of Python, and may run in several threads.
 */
#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

static const char OUT_OF_BOUNDS[] = "a row is out of bounds";

/* Rows below 0 count from the end. */
#define GATHER(type, row_type)                                                  \
    for (int64_t place = 0; place < picks; place++) {                           \
        int64_t row = ((const row_type *)rows)[place];                          \
        row += row < 0 ? length : 0;                                            \
        if ((uint64_t)row >= (uint64_t)length)                                  \
            return OUT_OF_BOUNDS;                                               \
        ((type *)picked)[place] = ((const type *)values)[row];                  \
    }                                                                           \
    return NULL

#define GATHER_BY(type)                                                         \
    if (row_bytes == 4) {                                                       \
        GATHER(type, int32_t);                                                  \
    }                                                                           \
    GATHER(type, int64_t)

/* Pick values of `bytes` bytes each out of `length`. Returns NULL, or the reason of a failure. */
EXPORTED const char *traceview_gather(const void *values, int64_t bytes, int64_t length,
                                      const void *rows, int64_t row_bytes, int64_t picks,
                                      void *picked)
{
    switch (bytes) {
    case 1:
        GATHER_BY(int8_t);
    case 2:
        GATHER_BY(int16_t);
    case 4:
        GATHER_BY(int32_t);
    default:
        GATHER_BY(int64_t);
    }
}
