//! Faces clients: HTTP in, modern era.
