/* Headers of TCP lane frames: bytes to struct and back, nothing else. The layout is in tcp.h. */
#include "core/transport/tcp_internal.h"

void tcp_frame_encode(const struct tcp_frame *frame, uint8_t head[TCP_HEAD_BYTES])
{
    struct sl_writer w = sl_writer_on(head, TCP_HEAD_BYTES);
    sl_write_u8(&w, frame->op);
    sl_write_bytes(&w, (uint8_t[3]){0}, 3);
    sl_write_u32(&w, frame->bytes);
    sl_write_u64(&w, frame->offset);
    sl_write_u64(&w, frame->tag);
}

bool tcp_frame_decode(const uint8_t head[TCP_HEAD_BYTES], struct tcp_frame *frame)
{
    struct sl_reader r = sl_reader_on(head, TCP_HEAD_BYTES);
    frame->op = sl_read_u8(&r);
    uint8_t reserved = sl_read_u8(&r);
    reserved |= sl_read_u8(&r);
    reserved |= sl_read_u8(&r);
    frame->bytes = sl_read_u32(&r);
    frame->offset = sl_read_u64(&r);
    frame->tag = sl_read_u64(&r);
    return sl_reader_done(&r) && !reserved && frame->op >= TCP_PULL && frame->op <= TCP_REFUSED;
}
