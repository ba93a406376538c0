/* C code of tables/arrays.py: the values of integer columns numbered, where they have few distinct ones.
 *
 * One pass with a hash table that stays in the cache, however far apart the values are. Knows
 * nothing of Python, and may run in several threads.
 */
#include <stdint.h>
#include <string.h>

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

/* Far beyond what happens by chance in a table that is at most half full. */
enum { MOST_PROBES = 512 };

static const char TOO_MANY[] = "there are too many different values";
static const char COLLISIONS[] = "values that are made to collide";

/* The distinct values in order of appearance; `slots` is a hash table of their numbers with 2^bits
 * entries, at least twice `most`. */
struct value_table {
    int64_t *values;
    int64_t most;
    int64_t count;
    int32_t *slots;
    int64_t bits;
};

/* The number of a value, added if new; -1 after too many probes, -2 if the table is full. */
static int32_t number_of(struct value_table *table, int64_t value)
{
    uint64_t mask = ((uint64_t)1 << table->bits) - 1;
    uint64_t slot = (uint64_t)value * 0x9E3779B97F4A7C15u >> (64 - table->bits);
    for (int probe = 0; probe < MOST_PROBES; probe++, slot++) {
        int32_t number = table->slots[slot & mask];
        if (number < 0) {
            if (table->count == table->most)
                return -2;
            number = (int32_t)table->count++;
            table->values[number] = value;
            table->slots[slot & mask] = number;
            return number;
        }
        if (table->values[number] == value)
            return number;
    }
    return -1;
}

/* Neighbours are mostly equal, so a value is first compared with the previous row's. */
#define NUMBER_ALL(type)                                                        \
    for (int64_t row = 0; row < rows; row++) {                                  \
        int64_t value = ((const type *)column)[row];                            \
        if (value != before || number < 0) {                                    \
            if ((number = number_of(table, value)) < 0)                         \
                return number == -1 ? COLLISIONS : TOO_MANY;                    \
            before = value;                                                     \
        }                                                                       \
        numbers[row] = number;                                                  \
    }                                                                           \
    return NULL

/* Number a column's values in order of appearance. Returns NULL, or the reason of a failure. */
EXPORTED const char *traceview_number_values(struct value_table *table, const void *column,
                                             int64_t value_bytes, int64_t rows, int32_t *numbers)
{
    int64_t before = 0;
    int32_t number = -1;
    memset(table->slots, 0xFF, sizeof(int32_t) << table->bits);
    table->count = 0;
    switch (value_bytes) {
    case 1:
        NUMBER_ALL(int8_t);
    case 2:
        NUMBER_ALL(int16_t);
    case 4:
        NUMBER_ALL(int32_t);
    default:
        NUMBER_ALL(int64_t);
    }
}
