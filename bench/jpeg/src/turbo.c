/* libjpeg-turbo's decoder as a good C program calls it: one decompressor that is used again, rows read straight into the
   caller's memory, of a region only its columns and rows, and nothing below it. Errors come back by longjmp. */

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jpeglib.h>

struct turbo {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    jmp_buf escape;
    int all_rows; /* every row that was asked for is there */
    char message[JMSG_LENGTH_MAX];
};

static void fail(j_common_ptr jpeg) {
    struct turbo *turbo = (struct turbo *)jpeg->client_data;
    jpeg->err->format_message(jpeg, turbo->message);
    longjmp(turbo->escape, 1);
}

static void warn(j_common_ptr jpeg, int level) {
    struct turbo *turbo = (struct turbo *)jpeg->client_data;
    if (level < 0 && jpeg->err->num_warnings++ == 0)
        jpeg->err->format_message(jpeg, turbo->message);
}

struct turbo *turbo_new(void) {
    struct turbo *volatile turbo = calloc(1, sizeof *turbo);
    if (!turbo)
        return NULL;
    turbo->jpeg.err = jpeg_std_error(&turbo->errors);
    turbo->errors.error_exit = fail;
    turbo->errors.emit_message = warn;
    turbo->jpeg.client_data = turbo;
    if (setjmp(turbo->escape)) {
        free(turbo);
        return NULL;
    }
    jpeg_create_decompress(&turbo->jpeg);
    return turbo;
}

void turbo_free(struct turbo *turbo) {
    jpeg_destroy_decompress(&turbo->jpeg);
    free(turbo);
}

const char *turbo_message(const struct turbo *turbo) { return turbo->message; }

static void begin(struct turbo *turbo, const unsigned char *bytes, unsigned long length) {
    turbo->message[0] = 0;
    turbo->all_rows = 0;
    turbo->errors.num_warnings = 0;
    jpeg_mem_src(&turbo->jpeg, bytes, length);
    jpeg_read_header(&turbo->jpeg, TRUE);
}

/* Decodes columns x..x + width and rows y..y + height of the image at 1/denominator to RGB, rows of `stride` bytes into
   `out`, which has room for `room` bytes. The decoder moves x down to a whole MCU and makes the region wider by as much: the
   rows begin there. Width 0 stands for all columns and all rows. Gives the size of what was written in `size`.
   Returns the number of warnings, or -1 for an error; turbo_message says which. An error behind the last row is a warning. */
int turbo_decode(struct turbo *turbo, const unsigned char *bytes, unsigned long length, unsigned denominator, unsigned x,
                 unsigned y, unsigned width, unsigned height, unsigned char *out, size_t room, unsigned size[2]) {
    struct jpeg_decompress_struct *jpeg = &turbo->jpeg;
    if (setjmp(turbo->escape)) {
        jpeg_abort_decompress(jpeg);
        return turbo->all_rows ? 1 : -1;
    }
    begin(turbo, bytes, length);
    jpeg->out_color_space = JCS_RGB;
    jpeg->scale_num = 1;
    jpeg->scale_denom = denominator;
    jpeg_start_decompress(jpeg);
    if (width > 0) {
        JDIMENSION from = x, columns = width;
        if (columns < jpeg->output_width)
            jpeg_crop_scanline(jpeg, &from, &columns);
        if (y > 0)
            jpeg_skip_scanlines(jpeg, y);
    }
    unsigned end = width > 0 ? y + height : jpeg->output_height;
    size_t stride = 3 * (size_t)jpeg->output_width;
    size[0] = jpeg->output_width;
    size[1] = end - y;
    if (stride * (end - y) > room) {
        strcpy(turbo->message, "the output has too little room");
        jpeg_abort_decompress(jpeg);
        return -1;
    }
    while (jpeg->output_scanline < end) {
        /* As many rows a call as a row of MCUs gives at most. */
        JSAMPROW rows[16];
        unsigned left = end - jpeg->output_scanline, count = left < 16 ? left : 16;
        for (unsigned i = 0; i < count; i++)
            rows[i] = out + (jpeg->output_scanline - y + i) * stride;
        jpeg_read_scanlines(jpeg, rows, count);
    }
    turbo->all_rows = 1;
    if (jpeg->output_scanline == jpeg->output_height)
        jpeg_finish_decompress(jpeg);
    else
        jpeg_abort_decompress(jpeg);
    return (int)turbo->errors.num_warnings;
}

/* Reads the coefficients of the whole image and hands the blocks of each component to `take`, row by row.
   Returns as turbo_decode. */
int turbo_coefficients(struct turbo *turbo, const unsigned char *bytes, unsigned long length,
                       void (*take)(void *state, int component, unsigned row, unsigned blocks, const short *coefficients),
                       void *state) {
    struct jpeg_decompress_struct *jpeg = &turbo->jpeg;
    if (setjmp(turbo->escape)) {
        jpeg_abort_decompress(jpeg);
        return -1;
    }
    begin(turbo, bytes, length);
    jvirt_barray_ptr *arrays = jpeg_read_coefficients(jpeg);
    for (int c = 0; take && c < jpeg->num_components; c++) {
        jpeg_component_info *component = &jpeg->comp_info[c];
        for (JDIMENSION row = 0; row < component->height_in_blocks; row++) {
            JBLOCKARRAY blocks = jpeg->mem->access_virt_barray((j_common_ptr)jpeg, arrays[c], row, 1, FALSE);
            take(state, c, row, component->width_in_blocks, blocks[0][0]);
        }
    }
    jpeg_finish_decompress(jpeg);
    return (int)turbo->errors.num_warnings;
}

/* The version of the headers, 3001000 for 3.1.0. */
int turbo_version(void) { return LIBJPEG_TURBO_VERSION_NUMBER; }
