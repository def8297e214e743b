//! The program `waypost`.

use std::process::ExitCode;

use waypost::cli::Cli;
use waypost::exit::exit;

/// Many small buffers of short life on every core: here the system's allocator costs a tenth.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    exit(Cli::read().run())
}
