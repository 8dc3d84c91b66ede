"""One message as a document."""

from __future__ import annotations

from typing import Final

from latent_workers.parse.mail import message
from latent_workers.parse.office.writing import parsed
from latent_workers.parse.parsed import ParsedDocument, SourceFile

_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def parse(source: SourceFile) -> ParsedDocument:
    data = source.read()
    if data.startswith(_OLE):
        from latent_workers.parse.mail import outlook

        mail = outlook.read(data, source.name)
    else:
        mail = message.read_eml(data, source.name)
    return parsed(message.written(mail, source.name), source.name)
