/* stanza.json: what is taken can be written and read again. */
#include "core/base/alloc.h"
#include "core/repo/manifest.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sl_stanza first, second;
    char *json;
    memset(&first, 0, sizeof first);
    memset(&second, 0, sizeof second);
    if (sl_stanza_decode((const char *)data, size, &first, NULL) != 0)
        return 0;
    if (sl_stanza_encode(&first, &json, NULL) != 0 ||
        sl_stanza_decode(json, strlen(json), &second, NULL) != 0 ||
        memcmp(&first, &second, sizeof first) != 0)
        abort();
    sl_free(json);
    return 0;
}
