/* Packed columns of integers: columns.py, compiled.
 *
 * A row is stored as what it is above the least value, or above the least step from the row before.
 * All arithmetic is modulo 2^64, so it is exact across all of int64.
 */
#include <stdint.h>

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

enum { WIDTHS = 3 };
static const uint64_t NARROW[WIDTHS] = {UINT8_MAX, UINT16_MAX, UINT32_MAX};

/* The least number, the most that one is above it, and how many do not fit into 1, 2 and 4 bytes. */
struct spread {
    uint64_t least;
    uint64_t most;
    int64_t beyond[WIDTHS];
};

/* A value, or the step to it; the first step is that of the second row. */
static uint64_t number(const int64_t *values, int64_t row, int64_t by_steps)
{
    if (!by_steps)
        return (uint64_t)values[row];
    int64_t at = row ? row : 1;
    return (uint64_t)values[at] - (uint64_t)values[at - 1];
}

/* Values that are absent, INT64_MIN, count as far above the least, unless all are. A column of
 * steps has at least two rows. */
EXPORTED void traceview_spread(const int64_t *values, int64_t rows, int64_t by_steps,
                               struct spread *of)
{
    int64_t least = INT64_MAX, present = 0;
    for (int64_t row = 0; row < rows; row++) {
        int64_t each = (int64_t)number(values, row, by_steps);
        int known = each != INT64_MIN;
        least = known && each < least ? each : least;
        present |= known;
    }
    of->least = (uint64_t)(present ? least : INT64_MIN);
    uint64_t most = 0;
    int64_t beyond[WIDTHS] = {0, 0, 0};
    for (int64_t row = 0; row < rows; row++) {
        uint64_t above = number(values, row, by_steps) - of->least;
        most = above > most ? above : most;
        for (int width = 0; width < WIDTHS; width++)
            beyond[width] += above > NARROW[width];
    }
    of->most = most;
    for (int width = 0; width < WIDTHS; width++)
        of->beyond[width] = beyond[width];
}

#define PACK_ALL(type)                                                          \
    for (int64_t row = 0; row < rows; row++) {                                  \
        uint64_t each = number(values, row, by_steps) - least;                  \
        ((type *)above)[row] = (type)each;                                      \
        if ((type)each != each) {                                               \
            far_rows[count] = (int32_t)row;                                     \
            far[count++] = each;                                                \
        }                                                                       \
    }                                                                           \
    return

/* What each row is above the least number, in `bytes` bytes, and the rows that do not fit. */
EXPORTED void traceview_pack(const int64_t *values, int64_t rows, int64_t by_steps, uint64_t least,
                             int64_t bytes, void *above, int32_t *far_rows, uint64_t *far)
{
    int64_t count = 0;
    switch (bytes) {
    case 1:
        PACK_ALL(uint8_t);
    case 2:
        PACK_ALL(uint16_t);
    case 4:
        PACK_ALL(uint32_t);
    default:
        PACK_ALL(uint64_t);
    }
}
