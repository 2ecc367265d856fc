# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled kernel: loops over records, in and out of batches, over the batches that a log takes at once, and
over the requests that bring them; and what a segment notes of its batches.

Works on buffers only; needs neither pyarrow nor numpy, and knows nothing of compression. Two
rules keep it inside its memory, whatever the bytes say and even when another thread changes them meanwhile:
a length is read once, into a local, and compared with what is left before it is used; and room is checked
before each record is written. The modules `reader`, `packing`, `numpy_columns`, `plain`, `alike`, `several` and `ends` do the same
work with the same results; the tests hold them against each other.
"""

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_Check
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_Check, PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset
from posix.uio cimport iovec, writev

from ottla.errors import DecompressionTooLarge, InvalidBatch, InvalidRecord, InvalidText
from ottla.records.batch import crc32c

include "format.pxi"
include "reading.pxi"
include "columns.pxi"
include "packing.pxi"
include "routing.pxi"
include "runs.pxi"
include "ends.pxi"
include "requests.pxi"
