"""What a file is that somebody took for a model, and what to do about it."""

from __future__ import annotations

# The first bytes of what people mistake for models, or get instead of one.
_BEGINNINGS = (
    (b"version https://git-lfs", "is only a pointer to the model in a large-file store; fetch it with 'git lfs pull'"),
    (b"/annex/objects/", "is only a pointer to the model in git-annex; fetch it with 'git annex get'"),
    (b"PK\x03\x04", "is a zip archive (PyTorch and Keras files are), not an ONNX model; export it to ONNX"),
    (b"\x80\x02", "is a Python pickle, not an ONNX model; export it to ONNX"),
    (b"\x1f\x8b", "is compressed with gzip; decompress it first"),
    (b"\x89HDF", "is an HDF5 file, not an ONNX model; export it to ONNX"),
    (b"<", "is a text file (HTML, XML or ONNX text), not an ONNX model; get the file itself, or parse it first"),
    (b"{", "is a JSON file, not an ONNX model"),
    (b"[", "is a JSON file, not an ONNX model"),
)
_FLATBUFFERS = {
    b"ORTM": "is in onnxruntime's ORT format; graphopt needs the ONNX file it was made from",
    b"TFL3": "is a TensorFlow Lite model; convert it to ONNX",
}
_HEAD = 1024


def describe_wrong_file(data: bytes) -> str | None:
    """What is wrong with a file's content as words that follow its name; None where it may well be a model.

    A model begins with a protobuf tag, nearly always a byte below 32, so text and other formats are easy to tell.
    """
    if not data:
        return "is empty; get the file again"
    for beginning, words in _BEGINNINGS:
        if data.startswith(beginning):
            return words
    if data[4:8] in _FLATBUFFERS:
        return _FLATBUFFERS[data[4:8]]
    head = data[:_HEAD]
    if all(byte >= 32 or byte in b"\t\n\r" for byte in head) and _is_utf8(head):
        return "is a text file, not an ONNX model"
    return None


def _is_utf8(head: bytes) -> bool:
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.start > len(head) - 4  # a character may be cut where the head ends
    return True
