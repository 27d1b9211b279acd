#if canImport(TensorFlowLite)
import Foundation
import TensorFlowLite

/// Names the best classes for ids, by a file with the outputs "ids" and "probabilities".
final class TopIds {
  private let runner: SignatureRunner
  private let length: Int?

  /// `length` is how many ids the file takes; nil is any number.
  init(path: String, length: Int? = nil) throws {
    var options = Interpreter.Options()
    options.threadCount = 2
    let interpreter = try Interpreter(modelPath: path, options: options)
    runner = try interpreter.signatureRunner(with: "serving_default")
    self.length = length
  }

  /// Ids and probabilities, the best first. Missing ids are 0.
  func of(_ ids: [Int32]) throws -> [(Int32, Float)] {
    var given = ids
    if let length {
      given = Array(ids.prefix(length))
      given += [Int32](repeating: 0, count: length - given.count)
    }
    let name = runner.inputs[0]
    try runner.resizeInput(named: name, toShape: [1, given.count])
    try runner.invoke(with: [name: given.withUnsafeBytes { Data($0) }])
    let best: [Int32] = try output("ids")
    let probabilities: [Float] = try output("probabilities")
    return Array(zip(best, probabilities))
  }

  private func output<Number>(_ name: String) throws -> [Number] {
    try runner.output(named: name).data.withUnsafeBytes {
      Array($0.bindMemory(to: Number.self))
    }
  }
}
#endif
