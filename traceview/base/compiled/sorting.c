/* C code of groups.py and intervals.py: a radix sort, and the intervals that are open over time.
 *
 * Knows nothing of Python, and may run in several threads.
 */
#include <stdint.h>
#include <string.h>

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

/* The counts of this many digits, and the cache lines written to, stay in the L1 cache. */
enum { DIGIT_BITS = 10, DIGITS = 1 << DIGIT_BITS, MOST_PASSES = 7 };

/* Stable sort of numbers >= 0 by their bits from `first_bit` on. Digits cover only bits in which
 * numbers differ, so that equal bits cost nothing. `room` is a buffer of the same length. */
EXPORTED void traceview_sort(uint64_t *numbers, uint64_t *room, int64_t rows, int64_t first_bit)
{
    int64_t counts[MOST_PASSES][DIGITS];
    int shifts[MOST_PASSES], passes = 0, ordered = 1;
    uint64_t different = 0;
    for (int64_t row = 1; row < rows; row++) {
        different |= numbers[row] ^ numbers[0];
        ordered &= numbers[row - 1] >> first_bit <= numbers[row] >> first_bit;
    }
    if (ordered)
        return;
    for (int bit = (int)first_bit; bit < 64 && different >> bit; bit += DIGIT_BITS) {
        while (!(different >> bit & 1))
            bit++;
        shifts[passes++] = bit;
    }
    memset(counts, 0, sizeof counts[0] * (size_t)passes);
    for (int64_t row = 0; row < rows; row++)
        for (int pass = 0; pass < passes; pass++)
            counts[pass][numbers[row] >> shifts[pass] & (DIGITS - 1)]++;
    uint64_t *from = numbers, *to = room;
    for (int pass = 0; pass < passes; pass++) {
        int64_t place = 0;
        for (int digit = 0; digit < DIGITS; digit++) {
            int64_t count = counts[pass][digit];
            counts[pass][digit] = place;
            place += count;
        }
        for (int64_t row = 0; row < rows; row++)
            to[counts[pass][from[row] >> shifts[pass] & (DIGITS - 1)]++] = from[row];
        uint64_t *other = from;
        from = to;
        to = other;
    }
    if (from != numbers)
        memcpy(numbers, from, sizeof *numbers * (size_t)rows);
}

/* The rows of values in descending order, equal ones in order of row. `room` is as long as `order`.
 *
 * Returns 0 if the range of values and the number of rows do not fit into 62 bits together. */
EXPORTED int traceview_most_first(const int64_t *values, int64_t rows, uint64_t *order,
                                  uint64_t *room)
{
    int bits = 0;
    int64_t least = rows ? values[0] : 0, most = least;
    for (int64_t row = 1; row < rows; row++) {
        least = values[row] < least ? values[row] : least;
        most = values[row] > most ? values[row] : most;
    }
    while (rows >> bits)
        bits++;
    if (((uint64_t)most - (uint64_t)least) >> (62 - bits))
        return 0;
    for (int64_t row = 0; row < rows; row++)
        order[row] = ((uint64_t)most - (uint64_t)values[row]) << bits | (uint64_t)row;
    traceview_sort(order, room, rows, bits);
    for (int64_t row = 0; row < rows; row++)
        order[row] &= ((uint64_t)1 << bits) - 1;
    return 1;
}

/* The number of intervals begun and not ended, at each time of a begin or an end; both ascend.
 * `changes` receives the number of these times, at most `begins` + `ends`. */
EXPORTED void traceview_running(const int64_t *begun, int64_t begins, const int64_t *ended,
                                int64_t ends, int64_t *times, int64_t *running, int64_t *changes)
{
    int64_t count = 0, begin = 0, end = 0;
    while (begin < begins || end < ends) {
        int64_t time = end == ends || (begin < begins && begun[begin] < ended[end]) ? begun[begin]
                                                                                    : ended[end];
        while (begin < begins && begun[begin] == time)
            begin++;
        while (end < ends && ended[end] == time)
            end++;
        times[count] = time;
        running[count++] = begin - end;
    }
    *changes = count;
}
