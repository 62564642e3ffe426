/* The index at a pack's end. */
#include "tests/fuzz/fuzz_records.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_records(sl_pack_index_reader_new, data, size);
    return 0;
}
