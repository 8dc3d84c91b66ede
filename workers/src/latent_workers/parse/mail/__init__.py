"""Mail: single messages (.eml, .msg), and mailboxes (.mbox), of which every message is a document."""
