//! What a child process prints: read on threads of its own, kept, and cut into lines.

use super::Finished;
use crate::ended::Ended;
use std::io::Read;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// What is kept of one process's output, in bytes: a kernel that prints in a loop must not fill the host's memory.
const OUTPUT_LIMIT: usize = 8 << 20;

/// Where a chunk of output was written.
#[derive(Clone, Copy)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// A piece of output.
pub type Chunk = (Stream, Vec<u8>);

/// Sends what arrives in `pipe` until it is closed.
pub fn forward(pipe: Option<impl Read + Send + 'static>, stream: Stream, sender: Sender<Chunk>) {
    let Some(mut pipe) = pipe else { return };
    std::thread::spawn(move || {
        let mut buffer = [0; 8192];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            if sender.send((stream, buffer[..count].to_vec())).is_err() {
                break;
            }
        }
    });
}

/// The output so far.
#[derive(Default)]
pub struct Output {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    transcript: Vec<u8>,
    lines: [Vec<u8>; 2],
}

impl Output {
    /// Adds a piece of output; `on_line` gets the lines that it completes.
    pub fn take(&mut self, (stream, bytes): &Chunk, on_line: &mut dyn FnMut(&str)) {
        let fits = |kept: &Vec<u8>| bytes.len().min(OUTPUT_LIMIT.saturating_sub(kept.len()));
        let own = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        own.extend_from_slice(&bytes[..fits(own)]);
        self.transcript
            .extend_from_slice(&bytes[..fits(&self.transcript)]);
        let line = &mut self.lines[*stream as usize];
        for byte in bytes {
            if *byte == b'\n' {
                on_line(String::from_utf8_lossy(line).trim_end());
                line.clear();
            } else if line.len() < OUTPUT_LIMIT {
                line.push(*byte);
            }
        }
    }

    /// Ends the last, unterminated lines and sums up.
    pub fn finish(self, ended: Ended, took: Duration, on_line: &mut dyn FnMut(&str)) -> Finished {
        for line in self.lines.iter().filter(|line| !line.is_empty()) {
            on_line(String::from_utf8_lossy(line).trim_end());
        }
        Finished {
            ended,
            stdout: String::from_utf8_lossy(&self.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&self.stderr).into_owned(),
            transcript: String::from_utf8_lossy(&self.transcript).into_owned(),
            took,
        }
    }
}
