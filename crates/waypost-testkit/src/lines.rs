//! Lines of an event stream: ended by LF, CR LF or CR, arriving in any pieces.

use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(crate) struct Lines {
    ready: VecDeque<Vec<u8>>,
    current: Vec<u8>,
    after_cr: bool,
}

impl Lines {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' if self.after_cr => {}
                b'\n' | b'\r' => self.ready.push_back(std::mem::take(&mut self.current)),
                other => self.current.push(*other),
            }
            self.after_cr = *byte == b'\r';
        }
    }

    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        self.ready.pop_front()
    }
}
